"""The engines: agents' graphs and runs, the model gateway, jobs and outgoing HTTP. They know no tool's rules."""
