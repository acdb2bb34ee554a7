# Stands in for Prometheus' image on machines that reach no image registry; engine.sh lays the context out and builds it.
FROM standin
WORKDIR /prometheus
ENTRYPOINT ["/usr/bin/prometheus", "--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]
