"""The fixtures: everything that the suite's scenarios look for by name."""

from tests.e2e.profile.asking_back import ASKING_BACK
from tests.e2e.profile.contents import CONTENTS
from tests.e2e.profile.input_required import INPUT_REQUIRED
from tests.e2e.profile.methods import EarlierMethods
from tests.e2e.profile.prompts import Prompts
from tests.e2e.profile.resources import Resources
from tests.e2e.profile.telling import TELLING

FIXTURES = (CONTENTS, TELLING, ASKING_BACK, INPUT_REQUIRED, Prompts(), Resources(), EarlierMethods())
