// (anonymous namespace)::leaf<long> <- shapes::Circle<int>::area <- shapes::total<...> <- shapes::operator+ <- main.
#include <functional>
#include <memory>
#include <vector>

#include "rare.h"

namespace {
template <typename T> KEPT T leaf(T n)
{
    RARE();
    AFTER();
    return n + 1;
}
}

namespace shapes {
struct Shape {
    virtual ~Shape() = default;
    virtual long area(long n) const = 0;
};

template <typename T> struct Circle : Shape {
    KEPT long area(long n) const override
    {
        long r = leaf<long>(n);
        AFTER();
        return r;
    }
};

template <typename... Ts> KEPT long total(const std::vector<std::unique_ptr<Shape>> &shapes, Ts... rest)
{
    long sum = 0;
    for (const auto &shape : shapes) {
        sum += shape->area((0 + ... + rest));
        AFTER();
    }
    return sum;
}

KEPT long operator+(const std::vector<std::unique_ptr<Shape>> &shapes, const Shape &)
{
    long r = total<int, long>(shapes, 1, 2);
    AFTER();
    return r;
}
}

int main(int argc, char **argv)
{
    std::vector<std::unique_ptr<shapes::Shape>> all;
    all.push_back(std::make_unique<shapes::Circle<int>>());
    shapes::Circle<char> other;
    prepare();
    for (int i = 0; i < TIMES; i++) {
        using shapes::operator+;
        all + other;
        AFTER();
    }
    linger(argc, argv);
}
