"""The page on which users of an app sign in."""
