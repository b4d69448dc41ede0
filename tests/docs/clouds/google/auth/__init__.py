"""The part of google-auth that the documentation uses, with its types."""

import datetime as dt
from collections.abc import Sequence

from google.auth.transport.requests import Request


class Credentials:
    """Those of a user, which do not say whose they are."""

    token = ""
    expiry = dt.datetime.fromisoformat("2000-01-01")  # in UTC, without saying so

    def refresh(self, request: Request) -> None:
        assert isinstance(request, Request)
        self.token, self.expiry = "ya29.canary-token", dt.datetime.fromisoformat("2096-10-02")


class ServiceAccountCredentials(Credentials):
    service_account_email = "billing@project.iam.gserviceaccount.com"


found: Credentials = ServiceAccountCredentials()
"""What the environment has."""


def default(scopes: Sequence[str]) -> tuple[Credentials, str]:
    assert scopes == ["https://www.googleapis.com/auth/cloud-platform"]
    return found, "project"
