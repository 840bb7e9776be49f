"""Tests of README and docs: commands, links, numbers, sentences and the site."""
