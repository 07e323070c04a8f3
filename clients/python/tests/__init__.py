"""A test that hangs ends the run after this many seconds, and every thread says where it is."""

import faulthandler

faulthandler.dump_traceback_later(120, exit=True)
