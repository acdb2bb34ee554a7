# Stands in for the official image of MySQL on machines that reach no image registry; engine.sh lays the context out and builds it.
FROM standin
COPY mysql /opt/mysql
COPY mysql.sh /usr/local/bin/docker-entrypoint.sh
VOLUME /var/lib/mysql
ENTRYPOINT ["docker-entrypoint.sh"]
CMD ["mysqld"]
