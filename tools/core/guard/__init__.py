"""What a person who approves a call sees and decides: proposals, changes, titles, words, and whose texts they are."""
