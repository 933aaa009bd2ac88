// velo_info: what velo would do in a job that is started here, and whether it would be used at all.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "info/arguments.h"
#include "info/job.h"
#include "info/names.h"
#include "info/networks.h"
#include "info/probes.h"
#include "info/settings.h"
#include "sim_device/shim/shim_device.h"

namespace {

using namespace velo::info;

/// Open MPI 5.0 has its plugins inside its libraries. Its mpirun takes mca_base_component_path for its own and PMIx's
/// as well, and gives it to the ranks.
constexpr bool kPathIsOfRanks = std::string_view(VELO_OMPI_SERIES) != "4.1";

/// The answers of --check, each printed as it is found.
class Check {
  public:
    void yes(const std::string& what) { line("ok  ", what); }
    void note(const std::string& what) { line("note", what); }
    void no(const std::string& what) {
        line("no  ", what);
        ++failures_;
    }
    /// A setting that has no effect.
    void ignored(const std::string& what) {
        line("no  ", what);
        ++ignorances_;
    }
    [[nodiscard]] int failures() const { return failures_; }
    [[nodiscard]] int ignorances() const { return ignorances_; }

  private:
    static void line(const char* kind, const std::string& what) {
        std::printf("%s  %s\n", kind, what.c_str());
    }
    int failures_ = 0;
    int ignorances_ = 0;
};

std::string series_of(const std::string& version) {
    const size_t dot = version.find('.', version.find('.') + 1);
    return version.substr(0, dot);
}

std::string from(const Setting& setting) {
    return " (" + setting.source + ")";
}

/// The names of a selection parameter; `excluded` when it begins with a caret.
std::vector<std::string> names_of(std::string value, bool& excluded) {
    excluded = value.starts_with('^');
    if (excluded) value.erase(0, 1);
    std::vector<std::string> names;
    for (size_t at = 0; at <= value.size();) {
        const size_t end = std::min(value.find(',', at), value.size());
        if (end != at) names.push_back(value.substr(at, end - at));
        at = end + 1;
    }
    return names;
}

bool lists(const std::vector<std::string>& names, const char* name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

void check_plugin(Check& check, const Settings& settings) {
    if (settings.version().empty()) {
        check.no("there is no Open MPI here: no ompi_info on the path, nor " VELO_OMPI_INFO);
        return;
    }
    const std::string built = VELO_OMPI_SERIES;
    if (series_of(settings.version()) == built) {
        check.yes("Open MPI " + settings.version() + " is of the series that velo was built for, " + built);
    } else {
        check.no("Open MPI " + settings.version() + " is not of the series that velo was built for, " +
                 built + "; build velo with --with-ompi naming this one");
    }
    const auto path = settings.find("mca_base_component_path");
    const std::string where = path ? path->value + from(*path) : "its directories";
    if (!settings.has("btl", "velo")) {
        check.no("Open MPI does not find the plugin, or cannot load it; it looks in " + where + ". " +
                 (kPathIsOfRanks ? "Set" : "Install it, or set") + " OMPI_MCA_mca_base_component_path=DIRECTORY" +
                 (kPathIsOfRanks ? "" : ":SYSTEM_DEFAULT"));
        return;
    }
    // mpirun of 5.0 gives its ranks the path of PMIx's file where the environment has none, over their own files.
    const std::string given = kPathIsOfRanks ? settings.path_of_ranks() : "";
    if (!given.empty() && path && given != path->value) {
        check.no("Open MPI finds the plugin in " + where + ", but mpirun makes ranks look in " + given +
                 ": set OMPI_MCA_mca_base_component_path=DIRECTORY");
        return;
    }
    check.yes("Open MPI finds the plugin in " + where);
    // The part of mpirun 4.1 that reads its options is a plugin, too.
    if (!kPathIsOfRanks && path && !settings.has("schizo", "ompi")) {
        check.no("mpirun does not find Open MPI's own plugins in " + where +
                 ", and says: unknown option \"-np\". Set OMPI_MCA_mca_base_component_path=DIRECTORY:SYSTEM_DEFAULT, "
                 "in which each directory exists and has no dangling link");
    }
    if (kPathIsOfRanks && path && path->value.find("SYSTEM_DEFAULT") != std::string::npos) {
        check.note("mpirun of Open MPI 5.0 complains of SYSTEM_DEFAULT in mca_base_component_path, "
                   "and does not need it");
    }
    if (kPathIsOfRanks && path && std::getenv("PMIX_MCA_mca_base_component_show_load_errors") == nullptr) {
        check.note("PMIx may complain of mca_btl_velo ('bad prefix'), which it looks at as well; to keep it quiet, set "
                   "PMIX_MCA_mca_base_component_show_load_errors=none");
    }
}

/// Under pml/cm velo's MTL matches, where it is the one that is asked for.
void check_mtl(Check& check, const Settings& settings, const Setting& pml) {
    const auto mtl = settings.find("mtl");
    bool excluded = false;
    const std::vector<std::string> names = names_of(mtl ? mtl->value : "", excluded);
    if (!excluded && names.size() == 1 && names[0] == "velo") {
        check.yes("pml is cm" + from(pml) + ", and mtl is velo" + from(*mtl) + ": velo matches messages");
        return;
    }
    const bool left_out = !names.empty() && lists(names, "velo") == excluded;
    check.no("pml is cm" + from(pml) + ", and mtl is '" + (mtl ? mtl->value : "") + "'" + (mtl ? from(*mtl) : "") +
             (left_out ? ", which leaves velo out: set mtl to velo, or pml to ob1"
                       : ", so another one may outrank velo: set mtl to velo, or pml to ob1"));
}

void check_pml(Check& check, const Settings& settings) {
    const auto pml = settings.find("pml");
    bool excluded = false;
    const std::vector<std::string> names = names_of(pml ? pml->value : "", excluded);
    if (!excluded && names.size() == 1 && names[0] == "ob1") {
        check.yes("pml is ob1, which BTLs belong to" + from(*pml));
    } else if (!excluded && names.size() == 1 && names[0] == "cm") {
        check_mtl(check, settings, *pml);
    } else if (!excluded && !names.empty() && !lists(names, "ob1")) {
        check.no("pml is " + pml->value + from(*pml) + ", and BTLs belong to ob1: set pml to ob1");
    } else {
        check.no("pml is left open ('" + (pml ? pml->value : "") + "'" + (pml ? from(*pml) : "") +
                 "): another one may outrank ob1, and velo would not be used: set pml to ob1");
    }
}

void check_btl(Check& check, const Settings& settings) {
    const auto btl = settings.find("btl");
    const std::string value = btl ? btl->value : "";
    const std::string shown = "btl is '" + value + "'" + (btl ? from(*btl) : "");
    bool excluded = false;
    const std::vector<std::string> names = names_of(value, excluded);
    const auto chosen = [&](const char* name) { return names.empty() || lists(names, name) != excluded; };
    if (!chosen("velo")) {
        check.no(shown + ", which leaves velo out: set btl to velo,self");
    } else if (!chosen("self")) {
        check.no(shown + ", which leaves self out, without which no job starts: set btl to velo,self");
    } else if (excluded || names.size() != 2) {
        check.yes(shown + "; velo takes every peer that it reaches, because its exclusivity is the highest");
    } else {
        check.yes(shown);
    }
}

/// Open MPI ignores a name that it does not know.
void check_names(Check& check, const Settings& settings, const std::vector<std::string>& given) {
    for (const UnknownName& unknown : unknown_names(settings, given)) {
        const std::string what = unknown.name + " (" + unknown.source + ") is no parameter, and is ignored" +
                                 (unknown.nearest.empty() ? "; velo_info without --check lists all of velo's"
                                                          : "; the nearest is " + unknown.nearest);
        if (!unknown.instead.empty()) {
            check.no(unknown.name + " (" + unknown.source + ") is no parameter of velo any more: " + unknown.instead);
        } else if (unknown.name.starts_with("btl_velo_") || unknown.nearest.starts_with("btl_velo_")) {
            check.ignored(what);
        } else {
            check.note(what);
        }
    }
}

/// Opens what a rank would open. A job on several hosts, of which nothing is known here, opens a network as well.
void check_network(Check& check, const Job& job) {
    const velo::EngineOptions& options = job.options();
    const velo_params_t& params = options.params;
    const bool chosen = std::ranges::any_of(
        std::array{params.if_include, params.provider_include, params.port_range},
        [](const char* text) { return *text != '\0'; });
    if (!options.network_used && (!chosen || std::string_view(params.device) == "sim")) return;
    try {
        check.yes("the network opens: " + open_as_a_rank(options));
    } catch (const velo::base::SetupError& error) {
        if (options.network_used) {
            check.no(error.what());
        } else {
            check.note("ranks on other hosts would not be reached: " + std::string(error.what()));
        }
    }
}

void check_machine(Check& check, const Job& job) {
    if (const Probe probe = probe_shared_memory(); probe.works) {
        check.yes("processes share memory files (memfd); /dev/shm is not used");
    } else {
        check.no("processes cannot share memory files: " + probe.why +
                 "; velo opens /proc/PID/fd of its peers, which must be of the same user, PID and user namespace");
    }
    // Of parameters that are refused nothing is known.
    if (!job.refusal().empty() || !job.options().node_copies.single) return;
    const std::string scope = ptrace_scope();
    const std::string rule = scope.empty() ? "" : " (kernel.yama.ptrace_scope is " + scope + ")";
    if (job.direct()) {
        check.yes("the kernel permits direct copies between processes" + rule);
    } else {
        check.note(
            "the kernel does not permit direct copies between processes: " + probe_direct_copy().why + rule +
            "; velo is used, and large messages are copied in pieces, which is slower. Containers: allow "
            "CAP_SYS_PTRACE; hosts: sysctl kernel.yama.ptrace_scope=1");
    }
}

void check_parameters(Check& check, const Job& job) {
    if (!job.refusal().empty()) {
        check.no(job.refusal());
        return;
    }
    if (job.options().device_used && !job.options().network_used) check.yes("the software device opens");
    check.yes("velo accepts its parameters for a job of " + std::to_string(job.ranks()) + " ranks");
    check_network(check, job);
}

/// Nothing is known of plugins and settings where ompi_info ends as it loads them.
void check_answer(Check& check, const Settings& settings) {
    const char* path = std::getenv("OMPI_MCA_mca_base_component_path");
    check.no(settings.command() + " " + settings.failure() + " as it loaded the plugins in " +
             (path == nullptr ? "its directories" : path) +
             ", and so does a job: one of them is damaged, such as a copy that is cut off. Copy or build them again");
}

int check(const Settings& settings, const Job& job, const std::vector<std::string>& given) {
    Check check;
    if (!settings.failure().empty()) {
        check_answer(check, settings);
    } else {
        check_plugin(check, settings);
        check_pml(check, settings);
        check_btl(check, settings);
        check_names(check, settings, given);
        check_parameters(check, job);
    }
    check_machine(check, job);
    if (check.failures() == 0 && check.ignorances() == 0) {
        std::printf("\nA job that is started here, with this environment, uses velo.\n");
        return 0;
    }
    if (check.failures() == 0) {
        std::printf(
            "\nA job that is started here, with this environment, uses velo, and ignores what is named above.\n");
        return 1;
    }
    std::printf("\nA job that is started here, with this environment, %s.\n",
                check.failures() == 1 ? "may not use velo, for the reason above"
                                      : "may not use velo, for the reasons above");
    return 1;
}

void report(const Settings& settings, const Job& job) {
#ifdef __clang__
    const char* compiler = "";  // its version says it
#else
    const char* compiler = "GCC ";
#endif
    std::printf("velo %s, built for Open MPI %s by %s%s\n", VELO_VERSION, VELO_OMPI_VERSION, compiler,
                __VERSION__);
    std::printf("  Open MPI here: %s (%s)\n",
                settings.version().empty() ? "none" : settings.version().c_str(), settings.command().c_str());
    if (!settings.failure().empty()) {
        std::printf("  plugin: unknown, because ompi_info %s\n", settings.failure().c_str());
    } else {
        std::printf("  plugin: %s\n", settings.has("btl", "velo") ? "found" : "not found by Open MPI");
    }
    std::printf("  installed to: %s\n\n", VELO_PLUGINDIR);
    if (!job.refusal().empty()) {
        std::printf("velo refuses these parameters: %s\n\n", job.refusal().c_str());
    } else {
        const velo::EngineOptions& options = job.options();
        std::printf(
            "Devices\n  software EXTOLL device: %u of up to %u ports%s\n\n", options.device.ports,
            velo::shim::kPortsMax,
            options.device_used ? "" : "; not used, all ranks are on one node (btl_velo_ranks_per_node)");
        std::printf("%s\n",
                    networks_text(options.network, static_cast<uint32_t>(options.params.ports)).c_str());
        std::printf("%s\n%s\n%s\n%s\n%s\n", machine_text(job).c_str(), paths_text(job).c_str(),
                    protocols_text(job, settings).c_str(), rails_text(job).c_str(), memory_text(job).c_str());
    }
    std::printf("%s", parameters_text(settings).c_str());
}

}  // namespace

int main(int argc, char** argv) {
    const Arguments arguments = read_arguments(argc, argv);
    for (const auto& [name, value] : arguments.mca) setenv(("OMPI_MCA_" + name).c_str(), value.c_str(), 1);

    const Settings settings = Settings::read();
    const Job job(settings, arguments.ranks);
    use_library_of(settings.directories(), VELO_PLUGINDIR);
    if (arguments.check) {
        std::vector<std::string> given;
        for (const auto& [name, value] : arguments.mca) given.push_back(name);
        return check(settings, job, given);
    }
    report(settings, job);
    return 0;
}
