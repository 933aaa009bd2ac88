"""Hook for EasyBuild: OpenMPI installs the headers that plugins are compiled with."""


def parse_hook(ec, *args, **kwargs):
    if ec.name == 'OpenMPI':
        ec.update('configopts', '--with-devel-headers')
