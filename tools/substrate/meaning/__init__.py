"""Search by meaning: memories have vectors, which a job fills in, and the nearest to a question's are found."""
