"""What an access file, tokens and certificates amount to: rules without a network."""

from __future__ import annotations

import hashlib

import pytest

from roofwatch.model.errors import UsageError
from roofwatch.store import access
from roofwatch.store.access import Access, Caller, Refusal, Role, Shown, Why, both

A, B = "rw_" + "a" * 43, "rw_" + "b" * 43
HASH_A, HASH_B = (hashlib.sha256(token.encode()).hexdigest() for token in (A, B))


def access_of(*lines: str, now: float = 0.0) -> Access:
    """Access by these lines."""
    return Access(access.parse("\n".join(lines)), now_unix_s=lambda: now)


def test_a_line_says_who_may_do_what():
    """Names, roles, nodes and an end; comments and empty lines say nothing."""
    found = access_of(
        "# a comment", "", f"token grafana role=read sha256={HASH_A}",
        f"token gpu-07 role=ingest node=gpu-07,gpu-08 expires=1970-01-02 sha256={HASH_B}",
    )  # fmt: skip
    assert found.caller(Shown(A)) == Caller("grafana", frozenset({Role.READ}))
    assert found.caller(Shown(B)) == Caller(
        "gpu-07", frozenset({Role.INGEST}), frozenset({"gpu-07", "gpu-08"}), 86_400.0
    )


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (f"token x role=root sha256={HASH_A}", "line 2 has no role of ingest, read, operate, admin"),
        (f"token x sha256={HASH_A}", "line 2 has no role"),
        ("token x role=read", "line 2 is no entry"),
        (f"token x role=read {A}", "line 2 is no entry"),
        (f"token x role=read sha256={HASH_A[:-1]}", "line 2 is no entry"),
        (f"token x role=read role=admin sha256={HASH_A}", "line 2 has a word that is not known"),
        (f"token x role=read color=red sha256={HASH_A}", "line 2 has a word that is not known"),
        (f"token x role=read node=a sha256={HASH_A}", "line 2 restricts nodes, which is for role ingest"),
        (f"token x role=ingest node= sha256={HASH_A}", "line 2 has a node without a name"),
        (f"token x role=ingest expires=soon sha256={HASH_A}", "line 2 has an expires= that is no date"),
        (f"token a/b role=read sha256={HASH_A}", "line 2 has a name that is none"),
        (f"token x role=read sha256={HASH_B}", "has one token twice"),
        ("grant all", "line 2 is no entry"),
    ],
)
def test_a_line_that_is_none_is_refused_by_its_number(line, told, tmp_path):
    """One sentence, the number of the line, and nothing of what stands there."""
    file = tmp_path / "access"
    file.write_text(f"token first role=read sha256={HASH_B}\n{line}\n")
    with pytest.raises(UsageError) as error:
        access.read(file)
    assert told in str(error.value)
    assert A not in str(error.value)
    assert HASH_A[:20] not in str(error.value)


def test_a_file_of_any_size_or_kind_is_bounded(tmp_path):
    """Too large, too many entries, no text, not there."""
    file = tmp_path / "access"
    for content in (b"#" * (access.MOST_BYTES + 1), b"\xff\xfe\x00", b"refuse sha256=%064d\n"):
        if content.startswith(b"refuse"):
            content = b"".join(content % n for n in range(access.MOST_ENTRIES + 1))  # noqa: PLW2901 - all of it
        file.write_bytes(content)
        with pytest.raises(UsageError, match="--access-file"):
            access.read(file)
    file.write_bytes(b"")
    file.chmod(0o666)
    with pytest.raises(UsageError, match="others can change it"):
        access.read(file)
    with pytest.raises(UsageError, match="No such file"):
        access.read(tmp_path / "nothing")


def test_who_shows_nothing_or_something_unknown_is_nobody():
    """Each with its own reason; an empty file lets nobody in."""
    some = access_of(f"token a role=read expires=1970-01-01T00:00:10 sha256={HASH_A}", now=10.0)
    for shown, why in ((Shown(), Why.NO_CREDENTIALS), (Shown(B), Why.TOKEN), (Shown(A), Why.EXPIRED)):
        refused = some.caller(shown)
        assert isinstance(refused, Refusal)
        assert refused.why is why
    assert isinstance(access_of("").caller(Shown(A)), Refusal)
    assert Access().open
    assert not access_of("").open


@pytest.mark.parametrize(
    ("method", "allowed"),
    [
        ("/roofwatch.v1.Ingest/Stream", {Role.INGEST, Role.ADMIN}),
        ("/roofwatch.v1.Query/Run", {Role.READ, Role.ADMIN}),
        ("/roofwatch.v1.Control/Capture", {Role.OPERATE, Role.ADMIN}),
        ("/roofwatch.v1.Control/ListTraces", {Role.OPERATE, Role.ADMIN}),
        ("/roofwatch.v1.Control/GetTrace", {Role.OPERATE, Role.ADMIN}),
        ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", {Role.ADMIN}),
        ("/roofwatch.v1.Ingest/Another", {Role.ADMIN}),
        ("/grpc.health.v1.Health/Check", set(Role)),
        ("/grpc.health.v1.Health/Watch", set(Role)),
    ],
)
def test_each_method_is_for_its_roles(method, allowed):
    """What is not listed is for admins: a method that somebody adds is closed until it is thought about."""
    may = set()
    for role in Role:
        found = access_of(f"token a role={role} sha256={HASH_A}").admit(method, Shown(A))
        may |= {role} if isinstance(found, Caller) else set()
        assert isinstance(found, Caller) or found.why is Why.ROLE or access.needed(method) is None
    assert may == allowed


def test_a_token_and_a_certificate_together_allow_what_both_do():
    """Roles and nodes are cut, the earlier end counts; admin of the one is what the other has."""
    ingest = Caller("t", frozenset({Role.INGEST}), frozenset({"a", "b"}), 20.0)
    cert = Caller("c", frozenset({Role.INGEST, Role.READ}), frozenset({"b", "c"}), 10.0)
    assert both(ingest, cert) == Caller("t", frozenset({Role.INGEST}), frozenset({"b"}), 10.0)
    assert both(Caller("t", frozenset({Role.ADMIN})), cert).roles == cert.roles
    assert both(Caller("t", frozenset({Role.READ})), ingest).roles == frozenset()
    assert not both(Caller("t", frozenset({Role.READ})), ingest).may_write("z")
