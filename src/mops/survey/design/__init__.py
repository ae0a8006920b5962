"""A survey as data: what varies, what it becomes, how long it would take. No torch."""
