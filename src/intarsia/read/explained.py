"""Plans and explanations of queries over many files, which read no more than indexes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from intarsia.plan.account import FileAccount
from intarsia.plan.explain import Explanation
from intarsia.plan.plan import FilePlan, Plan, Step
from intarsia.read.account import account_of, read_of
from intarsia.read.cache import FileCache
from intarsia.read.columns import roots_to_read
from intarsia.read.opened import OpenedFile
from intarsia.read.planner import Constants, folder_might_match, plan_reads, plan_rows
from intarsia.read.request import Request
from intarsia.read.survey import File, each_of, in_folders


def plan_files(cache: FileCache, files: Sequence[File], request: Request, gap: int) -> Plan:
    """The plan of ``files``, less those of folders that cannot match, which are not opened.

    ``gap`` is how many bytes apart two ranges may be and still share a request.
    """

    def planned(file: File) -> FilePlan:
        return _plan_file(cache.get(file.path), file.constants, request, gap)

    wanted = in_folders(files, request.pruning)
    return Plan.of(each_of(cache, (partial(planned, file) for file in wanted)))


def explain_files(
    cache: FileCache, files: Sequence[File], request: Request, gap: int, analyze: bool
) -> Explanation:
    """Accounts of all ``files``; with ``analyze`` each is read, one after the other."""
    accounts = tuple(_account(cache, file, request, gap, analyze) for file in files)
    text = "none" if request.filter is None else str(request.filter.condition.expression)
    return Explanation(accounts, text, request.all_columns, analyze)


def _account(
    cache: FileCache, file: File, request: Request, gap: int, analyze: bool
) -> FileAccount:
    opened = cache.get(file.path)
    plan = _plan_file(opened, file.constants, request, gap)
    if not folder_might_match(request.pruning, file.constants):
        return FileAccount(replace(plan, steps=(Step("folders", 0, 0),)))
    account = account_of(opened, request, plan)
    if not analyze:
        return account
    return replace(account, read=read_of(cache, file.path, request, file.constants, plan))


def _plan_file(opened: OpenedFile, constants: Constants, request: Request, gap: int) -> FilePlan:
    candidates = plan_rows(opened, request.pruning, constants, request.schema)
    roots = roots_to_read(opened, request, constants)
    return plan_reads(opened, roots, candidates, constants, gap)
