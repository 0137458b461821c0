"""The console: pages for people, rendered here, that call the tools as the person who is signed in."""
