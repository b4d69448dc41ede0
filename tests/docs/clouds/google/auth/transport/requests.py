"""The part of google-auth's transport that the documentation uses."""


class Request:
    """Sends requests over HTTP; here none."""
