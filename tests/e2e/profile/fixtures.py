"""The fixtures: everything that the suite's scenarios look for by name."""

from tests.e2e.profile.client_requests import CLIENT_REQUESTS
from tests.e2e.profile.contents import CONTENTS
from tests.e2e.profile.input_required import INPUT_REQUIRED
from tests.e2e.profile.methods import EarlierMethods
from tests.e2e.profile.notifications import NOTIFICATIONS
from tests.e2e.profile.prompts import Prompts
from tests.e2e.profile.resources import Resources

FIXTURES = (CONTENTS, NOTIFICATIONS, CLIENT_REQUESTS, INPUT_REQUIRED, Prompts(), Resources(), EarlierMethods())
