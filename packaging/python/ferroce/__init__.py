"""RDMA Verbs and RDMA CM on any Linux machine, for the programs that Python starts."""

import os
import subprocess

#: The `ferroce` command of this package.
COMMAND = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "ferroce")


def env(*options):
    """Return the environment in which `ferroce run` would start a program.

    It is a copy of os.environ with what finds Ferroce's libraries, so it can be given to
    subprocess as a whole: subprocess.run(["ibv_devices"], env=ferroce.env()). The options are
    those of `ferroce run`, such as "--no-sysfs".
    """
    printed = subprocess.run(
        [COMMAND, "run", *options, "--", "env", "-0"], check=True, stdout=subprocess.PIPE
    ).stdout
    return dict(line.split("=", 1) for line in os.fsdecode(printed).split("\0") if line)
