"""The handlers of all requests: importing this package registers them."""

from fikitd.api.requests import (  # noqa: F401
    administration,
    jobs,
    profiles,
    sessions,
    targets,
    traces,
    views,
    visible,
)
