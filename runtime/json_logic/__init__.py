"""JSON-Logic (jsonlogic.com): rules written as JSON, checked when parsed, evaluated in bounded time. No code is run."""
