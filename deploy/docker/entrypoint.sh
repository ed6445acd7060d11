#!/bin/sh
# The entry point of the image: a command of `millstream`, or one of
#   executor      what Spark on Kubernetes starts in the pods of its executors
#   healthcheck   asks the REST API of the driver in this container
set -eu

case "${1:-}" in
executor)
    # Spark describes the executor in these variables; options of Java are numbered from 0.
    options=$(env | sed -n 's/^SPARK_JAVA_OPT_\([0-9]*\)=/\1 /p' | sort -n | cut -d' ' -f2-)
    jars=$(python -c 'import os, pyspark; print(os.path.join(os.path.dirname(pyspark.__file__), "jars"))')
    # One option a line, in which blanks are part of the option.
    set -f
    IFS='
'
    # shellcheck disable=SC2086
    exec "${JAVA_HOME:+$JAVA_HOME/bin/}java" $options \
        "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
        -cp "${SPARK_CONF_DIR:+$SPARK_CONF_DIR:}$jars/*${SPARK_EXTRA_CLASSPATH:+:$SPARK_EXTRA_CLASSPATH}" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" \
        --executor-id "$SPARK_EXECUTOR_ID" \
        --cores "$SPARK_EXECUTOR_CORES" \
        --app-id "$SPARK_APPLICATION_ID" \
        --hostname "$SPARK_EXECUTOR_POD_IP" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
        --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
healthcheck)
    # Within the container, so the name in the certificate does not matter.
    exec python -c '
import os, ssl, urllib.request
url = os.environ.get("MILLSTREAM_HEALTH_URL", "http://127.0.0.1:8081/healthz")
urllib.request.urlopen(url, timeout=5, context=ssl._create_unverified_context())
'
    ;;
*)
    exec millstream "$@"
    ;;
esac
