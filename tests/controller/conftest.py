"""Keep the operator's log out of the way: these tests start hundreds of operators."""

import logging

import structlog

structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
