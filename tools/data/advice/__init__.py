"""What an app's developer should know: missing indexes, slow statements, tables that everybody reaches."""
