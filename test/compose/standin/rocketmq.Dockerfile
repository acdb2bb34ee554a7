# Stands in for RocketMQ's image on machines that reach no image registry; engine.sh lays the context out and builds it.
FROM standin
COPY rocketmq /opt/rocketmq
COPY rocketmq.sh /home/rocketmq/rocketmq-5.3.3/bin/mqnamesrv
COPY rocketmq.sh /home/rocketmq/rocketmq-5.3.3/bin/mqbroker
COPY rocketmq.sh /home/rocketmq/rocketmq-5.3.3/bin/mqadmin
ENV ROCKETMQ_HOME=/home/rocketmq/rocketmq-5.3.3
WORKDIR /home/rocketmq/rocketmq-5.3.3/bin
