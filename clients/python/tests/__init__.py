"""A run that takes longer than this many seconds has a test that hangs. It is ended, and every thread says where it is."""

import faulthandler

faulthandler.dump_traceback_later(300, exit=True)
