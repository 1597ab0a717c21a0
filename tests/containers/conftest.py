import sys

import pytest
from compose import Stack


@pytest.fixture(scope="session")
def stack(request):
    """Yields the whole stack, up and healthy; removes it afterwards in any case."""
    stack = Stack("postern-test")
    try:
        stack.up()
        yield stack
    finally:
        if request.session.testsfailed:
            sys.stderr.write(stack.compose("logs", "--no-color", "--tail", "40", check=False).stdout)
        stack.down()


@pytest.fixture
def whole(stack):
    """Yields the stack, and starts the services that a test stopped again afterwards."""
    yield stack
    stack.up()
