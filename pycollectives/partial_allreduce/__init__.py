"""The partial allreduce (eager-SGD): its calls, arguments and policies."""
