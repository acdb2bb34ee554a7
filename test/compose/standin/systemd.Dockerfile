# A machine with systemd, on which the package is installed.
FROM standin
CMD ["/sbin/init"]
