"""The Kubernetes manifests: valid by the schemas of Kubernetes, and consistent with each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest
import yaml

from millstream.cli.main import build_parser
from millstream.configuration import options
from millstream.configuration.configuration import Configuration
from millstream.configuration.option import parse_list
from millstream.rest.health import LIVENESS, READINESS
from millstream.rest.settings import is_wanted

DIRECTORY: Final = Path(__file__).parents[2] / "deploy" / "kubernetes"
#: The oldest and the newest that are tried.
VERSIONS: Final = ("1.30", "1.37")


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DIRECTORY / name).read_text()))


@pytest.fixture
def job() -> dict[str, dict[str, Any]]:
    return {each["kind"]: each for each in documents("job.yaml")}


@pytest.fixture
def pod(job: dict[str, dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = job["Deployment"]["spec"]["template"]["spec"]
    return found


@pytest.fixture
def driver(pod: dict[str, Any]) -> dict[str, Any]:
    (found,) = pod["containers"]
    return dict(found)


@pytest.fixture
def configuration(job: dict[str, dict[str, Any]], tmp_path: Path) -> Configuration:
    file = tmp_path / "millstream.yaml"
    file.write_text(job["ConfigMap"]["data"]["millstream.yaml"])
    return Configuration.from_file(str(file))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", sorted(path.name for path in DIRECTORY.glob("*.yaml")))
def test_the_schemas_accept_every_object(name: str, version: str) -> None:
    for each in documents(name):
        kubernetes_validate.validate(each, version, strict=True)


def test_the_schemas_refuse_a_wrong_name(job: dict[str, dict[str, Any]]) -> None:
    job["Deployment"]["spec"]["replica"] = 1
    with pytest.raises(kubernetes_validate.ValidationError, match="replica"):
        kubernetes_validate.validate(job["Deployment"], VERSIONS[-1], strict=True)


def test_the_command_runs_the_job_with_its_configuration(
    driver: dict[str, Any], configuration: Configuration, job: dict[str, dict[str, Any]]
) -> None:
    parsed = build_parser().parse_args(driver["args"])
    assert (parsed.command, parsed.standby, parsed.supervise) == ("run", False, False)
    assert parsed.config == "/etc/millstream/config/millstream.yaml"
    defined = dict(parsed.definitions)
    given = {each["name"] for each in driver["env"]}
    used = {value[2:-1] for value in defined.values() if value.startswith("$(")}
    assert used == {"POD_IP", "POD_NAME", "POD_NAMESPACE"}
    assert used <= given
    assert is_wanted(configuration)
    assert configuration.get(options.CHECKPOINTS_DIRECTORY).startswith("s3://")
    assert job["Deployment"]["spec"]["replicas"] == 1
    assert job["Deployment"]["spec"]["strategy"] == {"type": "Recreate"}


def test_probes_ask_the_endpoints_of_the_rest_api(
    driver: dict[str, Any], configuration: Configuration
) -> None:
    ports = {each["name"]: each["containerPort"] for each in driver["ports"]}
    assert str(ports["rest"]) == configuration.get(options.REST_PORT)
    for name, path in (
        ("startupProbe", LIVENESS),
        ("livenessProbe", LIVENESS),
        ("readinessProbe", READINESS),
    ):
        assert driver[name]["httpGet"] == {"path": path, "port": "rest", "scheme": "HTTPS"}
    assert configuration.get(options.REST_TLS)


def test_secrets_are_referenced_and_nowhere_else(
    driver: dict[str, Any], pod: dict[str, Any], configuration: Configuration
) -> None:
    secrets = {
        each["metadata"]["name"]: set(each["stringData"])
        for each in documents("secrets.example.yaml")
    }
    references = [
        each["valueFrom"]["secretKeyRef"]
        for each in driver["env"]
        if "secretKeyRef" in each["valueFrom"]
    ]
    assert {each["key"] for each in references} == {"aws-access-key-id", "aws-secret-access-key"}
    of_executors = [
        str(value).split(":")
        for key, value in configuration.to_dict().items()
        if key.startswith("spark.kubernetes.executor.secretKeyRef.")
    ]
    assert {(each["name"], each["key"]) for each in references} == {
        (name, key) for name, key in of_executors
    }
    assert all(each["key"] in secrets[each["name"]] for each in references)
    mounted = [each["secret"] for each in pod["volumes"] if "secret" in each]
    assert {each["secretName"] for each in mounted} == set(secrets)
    assert not configuration.get(options.REST_TOKEN)
    assert configuration.get(options.REST_TOKEN_FILE) == "/etc/millstream/secrets/rest-token"
    for values in documents("secrets.example.yaml"):
        assert set(values["stringData"].values()) == {"CHANGE-ME"}


def test_the_name_of_the_service_is_one_of_the_rest_api(
    job: dict[str, dict[str, Any]], configuration: Configuration
) -> None:
    """Otherwise requests through it are refused as DNS rebinding."""
    allowed = parse_list(configuration.get(options.REST_ALLOWED_HOSTS))
    assert job["Service"]["metadata"]["name"] in allowed


def test_driver_and_executors_have_one_image_and_account(
    driver: dict[str, Any], pod: dict[str, Any], configuration: Configuration
) -> None:
    found = configuration.to_dict()
    assert found["spark.kubernetes.container.image"] == driver["image"]
    account = found["spark.kubernetes.authenticate.serviceAccountName"]
    assert account == pod["serviceAccountName"]
    ports = {each["name"]: each["containerPort"] for each in driver["ports"]}
    assert int(str(found["spark.driver.port"])) == ports["spark-driver"]
    assert int(str(found["spark.blockManager.port"])) == ports["spark-blocks"]


def test_the_driver_runs_without_rights_of_the_machine(
    driver: dict[str, Any], pod: dict[str, Any]
) -> None:
    assert pod["securityContext"]["runAsNonRoot"]
    context = driver["securityContext"]
    assert context["readOnlyRootFilesystem"]
    assert not context["allowPrivilegeEscalation"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    mounted = {each["name"] for each in driver["volumeMounts"]}
    assert mounted == {each["name"] for each in pod["volumes"]}
