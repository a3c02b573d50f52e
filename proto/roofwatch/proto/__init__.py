"""The wire: protobuf messages, generated code and the codec between messages and records."""
