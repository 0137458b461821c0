"""What a client asks of rows, as PostgREST's clients write it: filters, columns and related rows; views, too."""
