"""Providers of people: one port, the wires of real ones, and a simulator."""
