"""Translate files of many types and keep their structure."""
