"""Commands in processes of their own that start in no time.

A server imports the package once, which takes 5 s, and every command runs in
a copy of the server.
"""

import multiprocessing
import os
import runpy
import sys
import threading

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["keras_bdl"])


class Command:
    """A running script or module, with the methods of `subprocess.Popen`.

    `stdout` has what the process prints and its errors.

    Args:
        target: The path of a script or the name of a module.
        arguments: The arguments of the command.
        environment: Variables of the environment, beside those of this process.
    """

    def __init__(self, target, *arguments, **environment):
        reader, writer = CONTEXT.Pipe(duplex=False)
        argv = [str(word) for word in (target, *arguments)]
        self._process = CONTEXT.Process(
            target=_run,
            args=(argv, {**os.environ, **environment}, writer),
            daemon=True,
        )
        self._process.start()
        writer.close()
        self.stdout = open(os.dup(reader.fileno()), encoding="utf-8")
        reader.close()

    @property
    def returncode(self):
        return self._process.exitcode

    def communicate(self, timeout=300):
        """Waits for the end, and kills the process after a time in seconds."""
        timer = threading.Timer(timeout, self.kill)
        timer.start()
        try:
            printed = "" if self.stdout.closed else self.stdout.read()
        finally:
            timer.cancel()
        self.stdout.close()
        self._process.join()
        return printed, None

    def kill(self):
        if self._process.is_alive():
            self._process.kill()


def _run(argv, environment, writer):
    for descriptor in (1, 2):
        os.dup2(writer.fileno(), descriptor)
    writer.close()
    sys.stdout = open(1, "w", buffering=1, closefd=False)
    sys.stderr = open(2, "w", buffering=1, closefd=False)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = argv
    # A script may start processes of its own.
    multiprocessing.current_process().daemon = False
    if argv[0].endswith(".py"):
        sys.path.insert(0, os.path.dirname(argv[0]))
        runpy.run_path(argv[0], run_name="__main__")
    else:
        runpy.run_module(argv[0], run_name="__main__", alter_sys=True)
