# Stands in for Kafka's image on machines that reach no image registry; engine.sh lays the context out and builds it.
FROM standin
COPY kafka /opt/kafka/libs
COPY kafka.sh /opt/kafka/bin/kafka-topics.sh
COPY kafka.sh /opt/kafka/bin/kafka-console-consumer.sh
COPY kafka.sh /opt/kafka/bin/start.sh
CMD ["/opt/kafka/bin/start.sh"]
