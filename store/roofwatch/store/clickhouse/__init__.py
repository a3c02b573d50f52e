"""The third engine: ClickHouse, for fleets that outgrow one server. What waits for it lies in a journal beside it."""
