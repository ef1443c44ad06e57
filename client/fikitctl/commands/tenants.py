"""``tenants``: whom work is accounted to, what each may use and has used."""

from __future__ import annotations

import click
from fikit.protocol import ListTenants, Tenants, priority_name

from fikitctl.invocation import Invocation
from fikitctl.output import print_json
from fikitctl.quantities import duration_text, size_text
from fikitctl.tables import Column, Layout, layout_options, table
from fikitctl.verb import Verb


def tenant_columns() -> list[Column]:
    """What can be printed of a tenant."""
    return [
        Column("tenant", lambda tenant: tenant.tenant),
        Column("uid", lambda tenant: str(tenant.uid), right=True),
        Column("ceiling", lambda tenant: priority_name(tenant.priority_ceiling)),
        Column("weight", lambda tenant: f"{tenant.weight:g}", right=True),
        Column("sessions", lambda tenant: str(tenant.sessions), right=True),
        Column("jobs", lambda tenant: str(tenant.jobs), right=True),
        Column("memory", lambda tenant: size_text(tenant.usage.memory_bytes), right=True),
        Column("limit", lambda tenant: size_text(tenant.memory_limit_bytes), right=True),
        Column("gpu_time", lambda tenant: duration_text(tenant.usage.gpu_ns / 1e9), right=True),
        Column("max_sessions", lambda tenant: str(tenant.max_sessions), right=True, hidden=True),
        Column("launches", lambda tenant: str(tenant.usage.launches), right=True, hidden=True),
        Column(
            "gate_wait",
            lambda tenant: duration_text(tenant.usage.gate_wait_ns / 1e9),
            right=True,
            hidden=True,
        ),
    ]


@click.command(
    cls=Verb,
    examples=["fikitctl tenants", "fikitctl tenants --format tenant,memory,limit", "fikitctl tenants --json"],
)
@layout_options(tenant_columns())
@click.pass_obj
def tenants(invocation: Invocation, layout: Layout) -> None:
    """List tenants, their limits and what they use."""
    reply: Tenants = invocation.request(ListTenants())
    if invocation.as_json:
        print_json(reply)
        return
    click.echo(table(tenant_columns(), reply.tenants, layout), nl=False)
