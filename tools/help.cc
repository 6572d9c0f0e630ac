#include "tools/help.h"

#include <algorithm>
#include <memory>
#include <string>

namespace waste::tools {
namespace {

/// "INT:INT in [1 - 8]" -> "N", "TEXT:{a,b}" -> "a|b", "FILE" -> "FILE".
std::string value_name(const std::string& type) {
    const size_t colon = type.find(':');
    const std::string head = type.substr(0, colon);
    if (colon != std::string::npos && type[colon + 1] == '{') {
        std::string choices = type.substr(colon + 2, type.rfind('}') - colon - 2);
        std::replace(choices.begin(), choices.end(), ',', '|');
        return choices;
    }
    if (head == "INT" || head == "UINT") return "N";
    return head == "FLOAT" ? "X" : head;
}

class CommandHelp : public CLI::Formatter {
  public:
    explicit CommandHelp(const char* about) : about_(about) {
        constexpr size_t kColumn = 30;
        column_width(kColumn);
    }

    std::string make_description(const CLI::App*) const override { return std::string(about_) + "\n"; }

    std::string make_option_opts(const CLI::Option* option) const override {
        if (option->get_items_expected_max() == 0) return "";  // a flag
        std::string text = " " + value_name(option->get_type_name());
        if (!option->get_default_str().empty()) text += " [" + option->get_default_str() + "]";
        return text;
    }

  private:
    const char* about_;
};

}  // namespace

void set_help(CLI::App& command, const char* about, const char* footer) {
    command.formatter(std::make_shared<CommandHelp>(about));
    command.footer(footer);
}

}  // namespace waste::tools
