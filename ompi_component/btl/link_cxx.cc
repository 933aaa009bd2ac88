// Makes automake link the plugin, whose own files are C, as C++.
