"""The part of azure-identity that the documentation uses, with its types; its token is that of a test."""

from typing import NamedTuple


class AccessToken(NamedTuple):
    token: str
    expires_on: int


class DefaultAzureCredential:
    given = ""
    """The token that is given out."""

    async def get_token(self, *scopes: str) -> AccessToken:
        assert scopes == ("https://mynamespace.servicebus.windows.net/.default",)
        return AccessToken(self.given, 4_000_000_000)
