"""Spack's openmpi, with the headers that its components are compiled with."""

from spack_repo.builtin.packages.openmpi.package import Openmpi as BuiltinOpenmpi

from spack.package import *


class Openmpi(BuiltinOpenmpi):
    __doc__ = BuiltinOpenmpi.__doc__

    variant("internal-headers", default=False, description="Install the headers that plugins are compiled with")

    def configure_args(self):
        return super().configure_args() + self.with_or_without("devel-headers", variant="internal-headers")
