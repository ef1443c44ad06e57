"""Tenants: who they are, what they may, what they have used."""
