import sys

import pytest
from compose import Stack


@pytest.fixture(scope="session")
def stack(request):
    """The whole stack, up and healthy; gone afterwards whatever happens."""
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
    """The stack with nothing missing: what a test took away is put back before the next one."""
    yield stack
    stack.up()
