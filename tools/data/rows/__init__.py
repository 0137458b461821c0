"""Reading and writing the rows of one app as one actor, in transactions."""
