# A machine with systemd, on which the package is installed. Credentials of a service are a mount that its processes see only if mounts are shared, as on
# a real machine.
FROM standin
CMD ["/bin/sh", "-c", "mount --make-rshared / && exec /sbin/init"]
