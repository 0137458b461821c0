"""The inbox: what one person does with the calls that wait for them, before a decision counts."""
