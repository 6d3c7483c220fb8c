"""Ranks that Ray or Spark starts: on this machine, or on the machines of a cluster.

Both run a `member` in so many processes, with torchrun's variables in the environment, and return the exit code of the
run (`fastdqn.execution.launch` has the contract). Neither package is imported before it is asked for. Unless a
cluster's address is given ranks speak over the loopback interface, although PyTorch's store listens on all of them, and
nothing is reported to anybody.

Ctrl-C here asks all ranks to stop, and to save, by a line to each (`fastdqn.execution.stop_line`). A second one leaves
at once, and leaves it to the engine to notice that nobody waits for it.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any

from fastdqn import process
from fastdqn.errors import RunError, UserError
from fastdqn.execution.starting import environment
from fastdqn.execution.stop_line import Reached, StopLine, loopback

JAVA = 17
"""The oldest version of Java that Spark 4 runs on."""
SMALL = 0.25
"""Of a core, that Ray reserves for each rank where there are fewer cores than ranks."""
GROUP_SECONDS = 60
"""In which Ray's processes have to find each other."""
_LOOPBACK = "127.0.0.1"
_NAMED = re.compile(r"(Caused by: )?[\w.$]+(Error|Exception|Exit): \S")

Member = Callable[[], int]


def on_ray(member: Member, world: int, address: str | None = None) -> int:
    """Run `member` in `world` processes by Ray's TorchTrainer; return the exit code of the run.

    Args:
        member: runs a rank to its end; can be pickled.
        world: ranks.
        address: of a cluster; by default that of RAY_ADDRESS, or else Ray is started on this machine and ended again.

    Raises:
        UserError: Ray is not installed.
        RunError: its job failed.
    """
    _check_ray()
    address = address or os.environ.get("RAY_ADDRESS")
    here = address is None
    with (
        environment(_absent(_quiet_ray(here))),
        tempfile.TemporaryDirectory(prefix="fastdqn-ray-", ignore_cleanup_errors=True) as folder,
        StopLine(_LOOPBACK if here else _own_address(), world) as line,
    ):
        reached = line.reached_by(member, together=here)
        return _code_of(line, lambda: _ray_job(reached, world, address, folder), "Ray", world)


def on_spark(member: Member, world: int, local: bool, address: str | None = None) -> int:
    """Run `member` in `world` processes by pyspark's TorchDistributor; return the exit code of the run.

    Args:
        member: runs a rank to its end; can be pickled.
        world: ranks.
        local: whether they are children of Spark's driver, this process; else they are tasks of its executors.
        address: Spark's master; by default that of SPARK_MASTER, or else Spark runs on this machine.

    Raises:
        UserError: pyspark, what it needs, or Java is not installed.
        RunError: its job failed.
    """
    _check_spark()
    address = address or os.environ.get("SPARK_MASTER") or f"local[{world}]"
    here = local or address.startswith("local")
    with (
        tempfile.TemporaryDirectory(prefix="fastdqn-spark-", ignore_cleanup_errors=True) as folder,
        environment(_absent(_quiet_spark(Path(folder), world, here))),
        StopLine(_LOOPBACK if here else _own_address(), world) as line,
    ):
        reached = line.reached_by(member, together=here)
        return _code_of(line, lambda: _spark_job(reached, world, local, address, Path(folder)), "Spark", world)


def _code_of(line: StopLine, job: Callable[[], None], engine: str, world: int) -> int:
    """Wait for the job; return the exit code of rank 0, or the first that is not 0.

    Raises:
        RunError: the job failed, or it says that it did not, but a rank ended without an exit code; and no other rank
            said why.
    """
    broken: Exception | None = None
    try:
        line.wait(job, engine)
    except (RunError, UserError):
        raise
    except Exception as error:  # whatever an engine makes of a process that was killed
        broken = error
    failed = [code for _, code in sorted(line.codes.items()) if code]
    lost = [str(rank) for rank in range(world) if rank not in line.codes]
    if failed:
        return failed[0]
    if broken is None and not lost:
        return 0
    if process.stop_signal():
        return process.exit_code()
    if lost:  # Spark takes a rank that was killed for one that ended well
        ranks, it, was = ("rank", "it", "was") if len(lost) == 1 else ("ranks", "they", "were")
        cause = "" if broken is None else f"; {engine} says: {_cause(broken)}"
        raise RunError(
            f"{engine} lost {ranks} {' and '.join(lost)}: {it} {was} killed, or failed before {it} began{cause}."
        ) from broken
    raise RunError(f"{engine}'s job failed: {_cause(broken)}.") from broken


def _ray_job(member: Reached, world: int, address: str | None, folder: str) -> None:
    """Start Ray, or reach its cluster, and let it run the ranks."""
    ray: Any = importlib.import_module("ray")
    train: Any = importlib.import_module("ray.train")
    torch_train: Any = importlib.import_module("ray.train.torch")
    cores = process.cores()
    each = 1.0 if address is not None or cores >= world else SMALL
    common: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False, "ignore_reinit_error": False}
    if address is None:
        common |= {
            "address": "local",
            "num_cpus": max(cores, -(-world // 4)),
            "include_dashboard": False,
            "_node_ip_address": _LOOPBACK,
            "object_store_memory": 100_000_000,
        }
    else:
        common |= {"address": address}
    ray.init(**common)
    try:
        trainer = torch_train.TorchTrainer(
            _ray_rank,
            train_loop_config={"member": member},
            torch_config=torch_train.TorchConfig(backend="gloo", timeout_s=GROUP_SECONDS),
            scaling_config=train.ScalingConfig(num_workers=world, resources_per_worker={"CPU": each}),
            run_config=train.RunConfig(
                name="fastdqn",
                storage_path=folder if address is None else None,
                failure_config=train.FailureConfig(max_failures=0),
                **(
                    {"logging_config": train.LoggingConfig(log_level="ERROR")}
                    if hasattr(train, "LoggingConfig")
                    else {}
                ),
            ),
        )
        trainer.fit()
    finally:
        ray.shutdown()


def _ray_rank(config: Mapping[str, Any]) -> None:
    """What one of Ray's processes does: it leaves Ray's process group, of which rank 0 agrees a free port with all."""
    import torch
    from torch import distributed

    dist: Any = distributed  # whose signatures are partly unknown
    port = torch.tensor([_free_port(os.environ["MASTER_ADDR"])])
    if dist.is_initialized():  # it is not where there is one rank
        dist.broadcast(port, 0)
        dist.destroy_process_group()
    os.environ["MASTER_PORT"] = str(int(port))
    config["member"]()


def _spark_job(member: Reached, world: int, local: bool, address: str, folder: Path) -> None:
    """Start Spark, or reach its master, and let it run the ranks."""
    sql: Any = importlib.import_module("pyspark.sql")
    distributor: Any = importlib.import_module("pyspark.ml.torch.distributor")
    builder = sql.SparkSession.builder.master(f"local[{world}]" if local else address).appName("fastdqn")
    for name, value in _spark_settings(folder, address.startswith("local") or local).items():
        builder = builder.config(name, value)
    with _own_standard_error(folder / "java.log"):  # Java greets there
        spark = builder.getOrCreate()
    try:
        ranks = distributor.TorchDistributor(num_processes=world, local_mode=local, use_gpu=False)
        ranks.logger.setLevel(logging.ERROR)
        ranks.run(member)
    finally:
        spark.stop()


def _spark_settings(folder: Path, here: bool) -> dict[str, str]:
    """Return Spark's settings: no pages, no progress bars, no second attempts."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.task.maxFailures": "1",
        "spark.stage.maxConsecutiveAttempts": "1",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder),
    }
    if here:
        settings |= {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}
    return settings


def _quiet_ray(here: bool) -> dict[str, str]:
    """Return what keeps Ray's processes quiet, where they were started, and on this machine to themselves."""
    quiet = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TRAIN_V2_ENABLED": "1",
        "RAY_TRAIN_METRICS_ENABLED": "0",
        "RAY_CHDIR_TO_TRIAL_DIR": "0",
        "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }
    return {**quiet, "GLOO_SOCKET_IFNAME": loopback()} if here else quiet


def _quiet_spark(folder: Path, world: int, here: bool) -> dict[str, str]:
    """Return what lets Spark's Java say errors alone, and Python be this one."""
    said = folder / "log4j2.properties"
    said.write_text(
        "rootLogger.level = error\nrootLogger.appenderRef.stderr.ref = stderr\n"
        "logger.repl.name = org.apache.spark.repl.Main\nlogger.repl.level = error\n"
        "appender.console.type = Console\nappender.console.name = stderr\nappender.console.target = SYSTEM_ERR\n"
        "appender.console.layout.type = PatternLayout\nappender.console.layout.pattern = Spark: %m%n\n",
        encoding="utf-8",
    )
    options = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} -Dlog4j2.configurationFile={said.as_uri()}".strip()
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    own = {"SPARK_LOCAL_IP": _LOOPBACK, "GLOO_SOCKET_IFNAME": loopback()} if here else {}
    threads = str(max(1, process.cores() // world))  # torchrun says a word about it otherwise
    return {"SPARK_SUBMIT_OPTS": options, "OMP_NUM_THREADS": threads, **python, **own}


def _check_ray() -> None:
    """Raise UserError, in one sentence, unless Ray is there."""
    _check_modules("Ray", "ray", ("ray", "pandas", "pyarrow"))


def _check_spark() -> None:
    """Raise UserError, in one sentence, unless pyspark and a Java for it are there."""
    _check_modules("Spark", "spark", ("pyspark", "pandas", "pyarrow"))
    java = java_program()
    advice = (
        f"say by apt-get install openjdk-{JAVA}-jre-headless or, where the system has no such package, "
        "default-jre-headless, or let JAVA_HOME say where it is"
    )
    if shutil.which(java) is None:
        raise UserError(f"Spark needs Java {JAVA} or newer, and {java} is not there; install it, {advice}.")
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=60.0).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"Spark needs Java {JAVA} or newer, and {java} cannot be run: {error}.") from error
    version = re.search(r'version "(\d+)', said)
    if version is not None and int(version[1]) < JAVA:
        raise UserError(f"Spark needs Java {JAVA} or newer, and {java} is {version[1]}; install a newer one, {advice}.")


def java_program() -> str:
    """Return what Java is called here: where JAVA_HOME says that it is, or else on the path."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


def _check_modules(engine: str, extra: str, modules: tuple[str, ...]) -> None:
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(
            f"--engine {extra} needs {engine}, and {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not "
            f'installed; fastdqn\'s extra has what it needs: pip install "fastdqn[{extra}]".'
        )


def _own_address() -> str:
    """Return the address by which other machines reach this one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # of no machine; nothing is sent
        return str(probe.getsockname()[0])
    return socket.gethostbyname(socket.gethostname())


def _free_port(address: str) -> int:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        with contextlib.suppress(OSError):
            probe.bind((address, 0))  # only rank 0's counts, whose address it is
        return int(probe.getsockname()[1])


def _cause(error: Exception | None) -> str:
    """Return the line that says what broke, without a full stop: the last that names an error, of Python or of Java, of
    all the tracebacks that an engine hands on; else the first.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [line for line in lines if _NAMED.match(line) and not line.endswith("(most recent call last):")]
    return (named[-1] if named else lines[0] if lines else type(error).__name__).rstrip(".")


@contextlib.contextmanager
def _own_standard_error(path: Path) -> Generator[None]:
    """Let what this process and those that it starts meanwhile print on standard error go into a file; if starting
    them fails it is printed after all.
    """
    before = os.dup(2)
    try:
        with path.open("wb") as file:
            os.dup2(file.fileno(), 2)
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            os.write(before, path.read_bytes())
        raise
    finally:
        os.dup2(before, 2)
        os.close(before)


def _absent(values: Mapping[str, str]) -> dict[str, str]:
    """Return those of these variables that the environment lacks; SPARK_SUBMIT_OPTS holds what is there already."""
    return {name: value for name, value in values.items() if name not in os.environ or name == "SPARK_SUBMIT_OPTS"}
