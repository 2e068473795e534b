"""Every format of power readings, read alike; damaged lines are counted, bad files are one line."""

import gzip
import re

import pytest

from calibrate.cli import main
from calibrate.power.readings import Reading, read_readings

# 2026-11-27 09:33:18 UTC.
AT_S = 1795771998
SMI = """\
timestamp, index, power.draw [W], temperature.gpu, clocks.current.sm [MHz]
2026/11/27 09:33:18.500, 0, 73.07 W, 34, 345 MHz
2026/11/27 09:33:18.510, 1, 90.00 W, 34, 1980 MHz
2026/11/27 09:33:19.500, 0, 74.00 W, 34, 345 MHz
"""
NO_UNITS = """\
power.draw [W], timestamp
73.07, 2026/11/27 09:33:18.500
90.00, 2026/11/27 09:33:18.510
74.00, 2026/11/27 09:33:19.500
"""
DMON = """\
#Date       Time        gpu     pwr  gtemp  mtemp   mclk   pclk
#YYYYMMDD   HH:MM:SS    Idx       W      C      C    MHz    MHz
 20261127   09:33:18      0      73     34     41   2619    345
 20261127   09:33:18      1      90     34      -   2619   1980
#Date       Time        gpu     pwr  gtemp  mtemp   mclk   pclk
#YYYYMMDD   HH:MM:SS    Idx       W      C      C    MHz    MHz
 20261127   09:33:19      0      74     34     41   2619    345
"""
DCGM = f"""\
{AT_S}.5 #Entity   POWER     SMCLK
{AT_S}.5 ID        W         MHz
{AT_S}.5 GPU 0     73.07     345
{AT_S}.51 GPU 1     90.00     1980
{AT_S + 1}.5 GPU 0     74.00     345
"""
METRICS = f"""\
# scraped {AT_S}500000
# HELP DCGM_FI_DEV_POWER_USAGE Power draw (in W).
# TYPE DCGM_FI_DEV_POWER_USAGE gauge
DCGM_FI_DEV_SM_CLOCK{{gpu="0",UUID="GPU-6ad7",modelName="NVIDIA H100"}} 345
DCGM_FI_DEV_POWER_USAGE{{gpu="0",UUID="GPU-6ad7",modelName="NVIDIA H100"}} 73.07
DCGM_FI_DEV_POWER_USAGE{{gpu="1",UUID="GPU-77aa",modelName="NVIDIA H100"}} 90.0 {AT_S}510
DCGM_FI_DEV_GPU_TEMP{{gpu="1",UUID="GPU-77aa",modelName="NVIDIA H100"}} 34
# scraped {AT_S + 1}500000
DCGM_FI_DEV_POWER_USAGE{{gpu="0",UUID="GPU-6ad7",modelName="NVIDIA H100"}} 74.0
"""


def written(folder, text, name="power.csv"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("text", [SMI, NO_UNITS, DMON, DCGM, METRICS], ids=range(5))
def test_every_format_gives_time_gpu_and_watts(tmp_path, text):
    found = read_readings(written(tmp_path, text))
    assert found.num_left_out == 0
    assert [one.watts for one in found.readings] == pytest.approx([73.07, 90, 74], abs=0.08)
    fine = text != DMON
    times = [AT_S + 0.5 * fine, AT_S + 0.51 * fine, AT_S + 1 + 0.5 * fine]
    assert [one.at_s for one in found.readings] == pytest.approx(times, abs=1e-4)
    names = ["0", "0", "0"] if text is NO_UNITS else ["0", "1", "0"]
    assert [one.gpu for one in found.readings] == names


@pytest.mark.parametrize("text", [SMI, DMON, DCGM], ids=range(3))
def test_clocks_are_read_where_they_are(tmp_path, text):
    found = read_readings(written(tmp_path, text))
    assert [one.clock_mhz for one in found.readings] == [345, 1980, 345]


def test_clock_of_a_metric_is_that_of_its_scrape(tmp_path):
    found = read_readings(written(tmp_path, METRICS))
    assert found.readings[0] == Reading(AT_S + 0.5, "0", 73.07, 345)
    assert found.readings[2].clock_mhz is None


def test_damaged_lines_are_counted_and_the_first_is_named(tmp_path):
    lines = SMI.splitlines()
    lines[2:2] = [
        "2026/11/27 09:33:18.505, 0, [N/A], 34, 345 MHz",
        "2026/11/27 09:33",
        "now, 0, 3 W",
    ]
    lines += ["2026/11/27 09:33:20.500, 0, 1e300 W, 34, 345 MHz", lines[0]]
    found = read_readings(written(tmp_path, "\n".join(lines)))
    assert [one.watts for one in found.readings] == [73.07, 90, 74]
    assert found.note() == "power.csv: 4 lines without a time and watts, first line 3"


def test_packed_file_is_read_too(tmp_path):
    path = tmp_path / "power.csv.gz"
    path.write_bytes(gzip.compress(SMI.encode()))
    assert len(read_readings(path).readings) == 3


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no column of power and time"),
        ("index, power.draw [W]\n0, 73.07 W\n", "no column of power and time"),
        (DMON.replace("#Date", "#").replace("Time", ""), "no column of power and time"),
        (re.sub(r"^\S+", "", DCGM, flags=re.MULTILINE), "no reading"),
        (SMI.partition("\n")[0] + "\n", "has no reading with a time and watts"),
        (
            SMI.replace(" W,", " x W,").replace("7", "seven ").replace("90.00", "[N/A]"),
            "no reading",
        ),
        ("\x00\xff" * 400, "no column of power and time"),
    ],
    ids=range(7),
)
def test_file_without_readings_gets_one_line(tmp_path, capsys, text, reason):
    path, log = written(tmp_path, text), written(tmp_path, "{}\n", "run.jsonl")
    assert main(["fit", str(log), "--power", str(path), "-o", str(tmp_path / "p.json")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert error.startswith(f"calibrate: {path}: ")
    assert reason in error


@pytest.mark.parametrize("offset", ["nan", "inf", "-1e12"])
def test_offset_that_is_no_number_of_seconds_is_refused(tmp_path, capsys, offset):
    path, log = written(tmp_path, SMI), written(tmp_path, "{}\n", "run.jsonl")
    options = ["--power", str(path), f"--power-offset={offset}", "-o", str(tmp_path / "p.json")]
    assert main(["fit", str(log), *options]) == 2
    error = capsys.readouterr().err
    assert error.startswith("calibrate: --power-offset ")
    assert error.count("\n") == 1
