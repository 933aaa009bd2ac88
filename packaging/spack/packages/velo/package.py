"""velo, for the Open MPI that Spack builds."""

from spack_repo.builtin.build_systems.autotools import AutotoolsPackage

from spack.package import *


class Velo(AutotoolsPackage):
    """Open MPI plugin that carries messages through shared-memory rings within a host, and as packets under credit flow
    control, with direct transfers, between hosts."""

    # No release is published yet. `spack develop` or a mirror names the source: see packaging/README.md.
    manual_download = True

    license("BSD-3-Clause")

    version("0.1.0")

    variant("ofi", default=True, description="Reach other hosts over libfabric")
    variant("sim", default=False, description="Also install velo_sim, which runs velo's flow control on a simulated cluster")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("autoconf@2.71:", type="build")
    depends_on("automake@1.16:", type="build")
    depends_on("libtool", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("cli11", type="build", when="+sim")
    depends_on("python@3:", type="run")
    depends_on("hwloc@2:")
    depends_on("libfabric@1.9:", when="+ofi")

    # Of 5.0, 5.0.7 is the one that velo was tried with.
    depends_on("openmpi@4.1.4:4.1,5.0.7:5.0 +internal-headers")

    requires("target=x86_64:", msg="velo is written for x86-64")
    requires("platform=linux", msg="velo is written for Linux")
    conflicts("%gcc@:11", msg="velo needs C++20: g++ 12 or clang++ 14")
    conflicts("%clang@:13", msg="velo needs C++20: g++ 12 or clang++ 14")

    def autoreconf(self, spec, prefix):
        Executable("./autogen.sh")()

    def configure_args(self):
        return [
            f"--with-ompi={self.spec['openmpi'].prefix}",
            f"--with-plugindir={self.plugindir}",
        ] + self.with_or_without("libfabric", variant="ofi")

    @property
    def plugindir(self):
        return self.prefix.lib.openmpi

    @run_after("install", when="+sim")
    def install_simulator(self):
        with working_dir(self.build_directory):
            make("velo_sim")
            Executable("./libtool")("--mode=install", "install", "velo_sim", self.prefix.bin)

    # The plugin stays in its own prefix, so a job finds it by Open MPI's path of components.
    def setup_run_environment(self, env):
        path = str(self.plugindir)
        if self.spec.satisfies("^openmpi@:4"):
            path += ":SYSTEM_DEFAULT"
        env.set("OMPI_MCA_mca_base_component_path", path)

    def test_check(self):
        """A job with velo would use it."""
        velo_info = which(self.prefix.bin.velo_info, required=True)
        velo_info("--check", "--mca", "pml", "ob1", "--mca", "btl", "velo,self")
