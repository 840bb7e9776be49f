"""Builders of tables, a module for each kind of content. Each takes its records from `tables.source`."""
