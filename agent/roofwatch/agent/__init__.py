"""The node daemon: registry, scheduler, parse workers, spool and uplink."""
